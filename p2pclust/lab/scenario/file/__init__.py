"""The keys of a scenario file, and how the file is loaded and checked."""
