#include "cli/prepare/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/base/complain.h"
#include "common/folder_name.h"
#include "common/help.h"

namespace slackline::cli::prepare {
namespace {

const HelpText kPrepareHelp = {
    .example = "slackline prepare photographs prepared --size 64",
    .most_used = "--size --split --labels",
    .groups = {{"Pixels", "--fit --grey --dtype"},
               {"Splits", "--folds --fold --seed"},
               {"Work and files", "--jobs --shard-images --overwrite --quiet"},
               {"Check a result", "--verify"}},
    .text =
        "SOURCE is one of:\n\n"
        "  a folder with one folder of JPEG or PNG files per class\n"
        "  a folder with the folders train, validation and test, each with such folders\n"
        "  a folder with tar files in WebDataset's layout\n"
        "  a folder with IDX files (MNIST)\n"
        "  with --labels, a folder with the images that a CSV file names\n\n"
        "In OUT all images have one shape. The files have NumPy's format, and training maps them into memory "
        "(data.format: prepared). index.json has classes, mean, deviation and checksums. If an image cannot be read, "
        "the command skips it, and OUT/skipped.csv gives the reason.\n\n"
        "To continue after an interruption, give the same command again. The result does not depend on --jobs.\n\n"
        "Exit codes: 0 done; 1 failed or damaged; 2 wrong use, or no image can be read.",
    .examples =
        "slackline prepare photographs prepared --size 64 --grey\n"
        "slackline prepare cells prepared --labels cells/labels.csv --seed 7\n"
        "slackline prepare photographs prepared --split train=0.85,test=0.15\n"
        "slackline prepare slides prepared --size 128 --grey --dtype float16\n"
        "slackline prepare /usr/share/datasets/fashion-mnist prepared\n"
        "slackline prepare --verify prepared"};

}  // namespace

Command::Command(CLI::App& app) {
  command_ = app.add_subcommand("prepare", "Convert images for training: one shape, splits, checksums");
  command_->add_option("SOURCE", options_.source, "Folder of the images");
  command_->add_option("OUT", options_.folder, "Folder for the result, new or empty");
  command_
      ->add_option("--labels", options_.label_file,
                   "CSV file with the columns path (below SOURCE), label, and optionally split")
      ->type_name("FILE");
  command_
      ->add_option(
          "--size", options_.size,
          "Scale all images to this size. Default: the size of the first image; images of another size are skipped")
      ->type_name("N|WxH");
  command_->add_option("--fit", options_.fit, "Stretch images of another shape, or crop their middle")
      ->capture_default_str()
      ->type_name("stretch|crop");
  command_->add_flag("--grey", options_.grey, "Write one channel. Default: three channels, or one for IDX files");
  command_
      ->add_option("--dtype", options_.dtype,
                   "Type of a pixel. float16 keeps the precision of 16-bit PNG and of scaling")
      ->capture_default_str()
      ->type_name("uint8|float16");
  command_
      ->add_option("--split", options_.split,
                   "Fractions of each class. Default: the splits of SOURCE, or train=0.8,validation=0.1,test=0.1")
      ->type_name("SPLIT=F,...");
  command_
      ->add_option("--folds", options_.folds, "Divide each class into K parts, one of which is test. Replaces --split")
      ->type_name("K")
      ->check(CLI::Range(2, 1000));
  command_->add_option("--fold", options_.fold, "With --folds: the part that is test")
      ->type_name("1..K")
      ->capture_default_str();
  command_->add_option("--seed", options_.seed, "Seed of the splits and of their order")->capture_default_str();
  command_->add_option("--jobs", options_.jobs, "Threads that decode images. Default: one per core")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command_->add_option("--shard-images", options_.shard_images, "Images per file. Default: as many as fit into 64 MiB")
      ->type_name("N")
      ->check(CLI::Range(1, 16777216));
  command_->add_flag("--overwrite", options_.overwrite, "Start again if OUT was made with other settings");
  command_->add_flag("--quiet", options_.quiet, "Show no progress");
  command_->add_option("--verify", verified_, "Only compare the files of this folder with their checksums")
      ->type_name("OUT")
      ->check(FolderMistake);
  SetHelp(*command_, kPrepareHelp);
}

bool Command::parsed() const { return command_->parsed(); }

int Command::Run() const {
  const bool verify = !verified_.empty();
  if (verify ? !options_.source.empty() : options_.source.empty() || options_.folder.empty()) {
    std::fprintf(stderr, "slackline prepare: allowed are SOURCE and OUT, or --verify OUT alone\n");
    return kExitWrongUse;
  }
  return verify ? VerifyPrepared(verified_) : Prepare(options_);
}

}  // namespace slackline::cli::prepare
