"""The job: plan, write, commit; read plan.py, then job.py, then commit.py."""
