#!/usr/bin/env python3
"""Whether the dashboard's file is what the code makes. Exits with 77 where Grafana's library is not installed.

usage: check_dashboard.py ROOT
"""
import importlib.util
import pathlib
import subprocess
import sys

if importlib.util.find_spec("grafana_foundation_sdk") is None:
    print("SKIP: grafana-foundation-sdk is not installed; ./test --all installs it")
    sys.exit(77)
command = [sys.executable, str(pathlib.Path(sys.argv[1]) / "monitoring/dashboard.py"), "--check"]
sys.exit(subprocess.run(command, check=False).returncode)
