"""One model of a run: typed events in, one state out. Terminal, live page, report, terms and records read it."""
