"""Plots of an experiment, as PNG and SVG."""
