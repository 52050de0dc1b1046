"""`slackline compare`: starts slackline_experiment.compare."""
