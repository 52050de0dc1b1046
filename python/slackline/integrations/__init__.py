"""Trainers of other libraries as workers of a job: transformers (Hugging Face) and lightning. docs/python.md."""
