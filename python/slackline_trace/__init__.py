"""`slackline trace`: what `worker.trace` has written, in the forms of others."""
