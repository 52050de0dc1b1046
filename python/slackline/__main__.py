"""`python -m slackline`: the command `slackline` of this installation."""

from slackline_command import main

main()
