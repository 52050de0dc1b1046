"""`slackline plan`: how long a job takes for several batch sizes and numbers of nodes, before anybody asks for them."""
