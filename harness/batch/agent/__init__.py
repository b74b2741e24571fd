"""Scripts of the containers of a Batch job: they need Python alone, and travel in the job's command."""
