"""Stands in for wandb: an offline run is a folder with a file of what it was told, a line each."""
import json
import pathlib


class Settings:
    def __init__(self, **settings):
        assert settings["silent"] and settings["console"] == "off", settings


class Run:
    def __init__(self, folder, told):
        self.dir = str(folder / "files")
        self._told = folder / "told.jsonl"
        folder.mkdir(parents=True)
        self.summary = self
        self._tell("init", told)

    def _tell(self, what, value):
        with self._told.open("a") as file:
            file.write(json.dumps([what, value]) + "\n")

    def log(self, values, step):
        self._tell("log", [step, values])

    def update(self, values):
        self._tell("summary", values)

    def finish(self, exit_code):
        self._tell("finish", exit_code)


def init(*, mode, project, name, id, dir, config, tags, settings):
    assert mode == "offline" and isinstance(settings, Settings)
    return Run(pathlib.Path(dir) / "wandb" / f"offline-run-20260101_000000-{id}",
               {"project": project, "name": name, "config": config, "tags": tags})
