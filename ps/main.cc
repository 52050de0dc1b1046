#include "ps/program.h"

int main(int argc, char** argv) { return slackline::ps::RunProgram(argc, argv); }
