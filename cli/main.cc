#include "cli/program.h"

int main(int argc, char** argv) { return slackline::cli::RunProgram(argc, argv); }
