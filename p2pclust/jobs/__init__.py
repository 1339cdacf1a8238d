"""A job: its keys in scenarios, submissions and configurations, their checks, and the request made of them."""
