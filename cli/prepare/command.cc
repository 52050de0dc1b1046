#include "cli/prepare/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/base/complain.h"
#include "cli/prepare/prepare.h"
#include "common/text/folder_name.h"
#include "common/text/help.h"

namespace slackline::cli::prepare {
namespace {

const HelpText kPrepareHelp = {
    .example = "slackline prepare photographs prepared --size 64",
    .most_used = "--size --split --labels",
    .groups = {{"Pixels", "--tile --fit --grey --dtype"},
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
        "slackline prepare textures prepared --tile 64x64 --grey\n"
        "slackline prepare slides prepared --size 128 --grey --dtype float16\n"
        "slackline prepare /usr/share/datasets/fashion-mnist prepared\n"
        "slackline prepare --verify prepared"};

// Prepares images, or verifies those in the folder `verified`. Returns the exit code.
int PrepareOrVerify(const PrepareOptions& options, const std::string& verified) {
  const bool verify = !verified.empty();
  if (verify ? !options.source.empty() : options.source.empty() || options.folder.empty()) {
    std::fprintf(stderr, "slackline prepare: allowed are SOURCE and OUT, or --verify OUT alone\n");
    return kExitWrongUse;
  }
  return verify ? VerifyPrepared(verified) : Prepare(options);
}

}  // namespace

AddedCommand AddPrepare(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<PrepareOptions>();
  const auto verified = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("prepare", "Convert images for training: one shape, splits, checksums");
  command->add_option("SOURCE", options->source, "Folder of the images");
  command->add_option("OUT", options->folder, "Folder for the result, new or empty");
  command
      ->add_option(
          "--labels", options->label_file,
          "CSV file with the columns path (below SOURCE), label, and optionally split and source. Images of one "
          "source stay in one split")
      ->type_name("FILE");
  command
      ->add_option(
          "--size", options->size,
          "Scale all images to this size. Default: the size of the first image; images of another size are skipped")
      ->type_name("N|WxH");
  command
      ->add_option("--tile", options->tile,
                   "Cut pictures into tiles of this size first; all tiles of a picture are in one split")
      ->type_name("N|WxH");
  command->add_option("--fit", options->fit, "Stretch images of another shape, or crop their middle")
      ->capture_default_str()
      ->type_name("stretch|crop");
  command->add_flag("--grey", options->grey, "Write one channel. Default: three channels, or one for IDX files");
  command
      ->add_option("--dtype", options->dtype,
                   "Type of a pixel. float16 keeps the precision of 16-bit PNG and of scaling")
      ->capture_default_str()
      ->type_name("uint8|float16");
  command
      ->add_option("--split", options->split,
                   "Fractions of each class. Default: the splits of SOURCE, or train=0.8,validation=0.1,test=0.1")
      ->type_name("SPLIT=F,...");
  command
      ->add_option("--folds", options->folds, "Divide each class into K parts, one of which is test. Replaces --split")
      ->type_name("K")
      ->check(CLI::Range(2, 1000));
  command->add_option("--fold", options->fold, "With --folds: the part that is test")
      ->type_name("1..K")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the splits and of their order")->capture_default_str();
  command->add_option("--jobs", options->jobs, "Threads that decode images. Default: one per core")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command->add_option("--shard-images", options->shard_images, "Images per file. Default: as many as fit into 64 MiB")
      ->type_name("N")
      ->check(CLI::Range(1, 16777216));
  command->add_flag("--overwrite", options->overwrite, "Start again if OUT was made with other settings");
  command->add_flag("--quiet", options->quiet, "Show no progress");
  command->add_option("--verify", *verified, "Only compare the files of this folder with their checksums")
      ->type_name("OUT")
      ->check(FolderMistake);
  SetHelp(*command, kPrepareHelp);
  return {command, [options, verified] { return PrepareOrVerify(*options, *verified); }};
}

}  // namespace slackline::cli::prepare
