"""The mathematics that the core asks for, as pure functions of a task."""
