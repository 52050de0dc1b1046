#include "cli/prepare/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/complain.h"
#include "common/folder_name.h"

namespace slackline::cli::prepare {
namespace {

constexpr char kPrepareHelp[] = R"(
SOURCE is a folder with a folder of images (JPEG, PNG) for each class, or with folders train, validation and test of
these; or with tar files as WebDataset has them; or with the files of IDX (MNIST); or, with --labels, with images that a
CSV names. In OUT all images have one shape, as files of NumPy's format that training maps into its memory (data.format:
prepared), beside an index.json with classes, mean, deviation and checksums. Images that cannot be read are passed over,
and OUT/skipped.csv says why.

What was interrupted goes on when the same command is given again. The result does not depend on --jobs.
Exit codes: 0 done, 2 wrong use (flags, or no image can be read), 1 failed or broken.

Examples
  slackline prepare photographs prepared --size 64 --grey
  slackline prepare cells prepared --labels cells/labels.csv --split train=0.85,validation=0.02,test=0.13 --seed 7
  slackline prepare slides prepared --size 128 --grey --dtype float16
  slackline prepare /usr/share/datasets/fashion-mnist prepared
  slackline prepare --verify prepared)";

}  // namespace

Command::Command(CLI::App& app) {
  command_ = app.add_subcommand("prepare", "Make images ready for training: one shape, splits, checksums");
  command_->add_option("SOURCE", options_.source, "Folder of the images");
  command_->add_option("OUT", options_.folder, "Folder for the result, new or empty");
  command_->add_option("--labels", options_.label_file, "CSV with columns path (below SOURCE), label, and maybe split")
      ->type_name("FILE");
  command_
      ->add_option("--size", options_.size,
                   "All images are scaled to it; default: that of the first image, others are skipped")
      ->type_name("N|WxH");
  command_->add_option("--fit", options_.fit, "What happens to images of another shape: stretch, or crop their middle")
      ->capture_default_str()
      ->type_name("stretch|crop");
  command_->add_flag("--grey", options_.grey, "One channel; default: three, of IDX one");
  command_
      ->add_option("--dtype", options_.dtype,
                   "What a pixel is written as; float16 keeps 16-bit PNG, and what scaling rounds")
      ->capture_default_str()
      ->type_name("uint8|float16");
  command_
      ->add_option("--split", options_.split,
                   "Fractions, of each class; default: as SOURCE has it, else train=0.8,validation=0.1,test=0.1")
      ->type_name("SPLIT=F,...");
  command_->add_option("--folds", options_.folds, "In the place of --split: parts of each class, of which one is test")
      ->type_name("K")
      ->check(CLI::Range(2, 1000));
  command_->add_option("--fold", options_.fold, "With --folds: which of them is test")
      ->type_name("1..K")
      ->capture_default_str();
  command_->add_option("--seed", options_.seed, "Of the split, and of the order in it")->capture_default_str();
  command_->add_option("--jobs", options_.jobs, "Threads that decode; default: one a core")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command_->add_option("--shard-images", options_.shard_images, "Images a file; default: as many as 64 MiB hold")
      ->type_name("N")
      ->check(CLI::Range(1, 16777216));
  command_->add_flag("--overwrite", options_.overwrite, "Begin anew where OUT was made with other settings");
  command_->add_flag("--quiet", options_.quiet, "Show no progress");
  command_->add_option("--verify", verified_, "Only compare the files of this folder with their checksums")
      ->type_name("OUT")
      ->check(FolderMistake);
  command_->footer(kPrepareHelp);
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
