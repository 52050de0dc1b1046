#include "scheduler/program.h"

int main(int argc, char** argv) { return slackline::scheduler::RunProgram(argc, argv); }
