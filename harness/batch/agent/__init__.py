"""What runs in the containers of a Batch job: two scripts that need Python alone, handed over in its command."""
