"""Every statement and form of statement that the requirement documents write, and what runs it."""
