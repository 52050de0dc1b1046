"""Workers of a job for the trainers of other libraries: transformers (Hugging Face) and lightning."""
