# Topics of `slackline help`: NAME=PAGE, in the order of the list that it prints. A page lies in docs/ and has at most
# 60,000 bytes. Its first heading is the topic's title.
set(topics
  how-it-works=how-it-works.md
  modes=modes.md
  durability=durability.md
  glossary=glossary.md
  models=models.md
  data=data.md
  python=python.md
  self-supervised=self-supervised.md
  resume=resume.md
  resize=resize.md
  failures=failures.md
  several-machines=several-machines.md
  slurm=slurm.md
  kubernetes=kubernetes.md
  gpu=gpu.md
  simulation=simulation.md
  operations=operations.md
  security=security.md
  energy=energy.md
  run-folder=run-folder.md
  status=status.md
  limits=limits.md
  untested=untested.md)
