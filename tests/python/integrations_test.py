"""Trainers of other libraries as workers: the examples, which make their models and data themselves.

    integrations_test.py --programs BIN_FOLDER --package FOLDER --examples FOLDER [TEST...]

A library that is not there is skipped, with a message.
"""

import launch_test
from needs import needs


class Integrations(launch_test.Launched):
    def check(self, script, job, least, *arguments):
        run = self.launch(launch_test.OPTIONS.examples / script, "--servers", "1", "--workers", "2",
                          job=launch_test.OPTIONS.examples / job, arguments=arguments)
        self.assertEqual(run.wait(240), 0, run.diagnosis())
        for name in ("worker-1", "worker-2"):
            self.assertIn("steps: training is complete", self.log(run, name), run.diagnosis())
        self.assertGreater(self.accuracy(run), least, run.diagnosis())

    @needs("transformers")
    @needs("accelerate")
    def test_transformers(self):
        self.check("transformers_trainer.py", "sentences.yaml", 0.5)

    @needs("transformers")
    @needs("accelerate")
    def test_transformers_in_bf16_with_loader_processes(self):
        self.check("transformers_trainer.py", "sentences.yaml", 0.5, "--bf16", "--loaders", "2")

    @needs("lightning")
    def test_lightning(self):
        self.check("lightning_trainer.py", "patterns.yaml", 0.5)

    @needs("lightning")
    def test_lightning_in_bf16_with_loader_processes(self):
        self.check("lightning_trainer.py", "patterns.yaml", 0.5, "--bf16", "--loaders", "2")


if __name__ == "__main__":
    launch_test.main()
