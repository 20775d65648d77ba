"""Access control: the privileges of each statement, and a policy of grants."""
