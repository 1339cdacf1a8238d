"""Data of experiments: sets that are fetched, splits as files, draws by class, damage; and the files of a fleet from one."""
