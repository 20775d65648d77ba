"""Who may give which statement: what each asks for, and a policy of grants."""
