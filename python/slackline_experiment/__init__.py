"""`slackline experiment`: a grid of jobs, run one after the other, and what came out as tables, plots and one page."""
