"""One model of a job: the keys of scenarios, submissions and configurations, their checks, and the documents made of them."""
