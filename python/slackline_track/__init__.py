"""`slackline track`: hands the figures of a run to Weights & Biases and MLflow, from the files of its folder."""
