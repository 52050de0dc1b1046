"""The documents that are installed link only to what is installed.

    links_test.py --build BUILD_FOLDER --cmake CMAKE
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tidy"))

import documents  # noqa: E402
from tree import Tree  # noqa: E402

OPTIONS = argparse.Namespace()


class Links(unittest.TestCase):
    def test_each_leads_to_an_installed_file_or_folder(self):
        with tempfile.TemporaryDirectory(prefix="slackline-links-") as prefix:
            for component in ("docs", "data"):
                subprocess.run([OPTIONS.cmake, "--install", OPTIONS.build, "--prefix", prefix, "--component", component],
                               check=True, capture_output=True, timeout=60)
            tree = Tree.read(prefix)
        paths = tree.paths()
        for name in ("README.md", "CHANGELOG.md", "docs/status.md", "docs/adr/README.md"):
            self.assertIn(f"share/doc/slackline/{name}", paths)
        self.assertEqual([str(problem) for problem in documents.check_links(tree)], [])
        # Links were mended and not all taken away.
        readme = tree.text("share/doc/slackline/README.md")
        self.assertIn("[examples](../../slackline/examples)", readme)
        self.assertIn("(docs/status.md)", readme)
        self.assertIn("](CHANGELOG.md)", readme)
        self.assertNotIn("](CONTRIBUTING.md)", readme)
        self.assertIn("**Change**: contributing ·", readme)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--cmake", required=True)
    parser.parse_args(namespace=OPTIONS)
    unittest.main(argv=sys.argv[:1], verbosity=2)
