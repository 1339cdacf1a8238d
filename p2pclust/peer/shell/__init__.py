"""The acting half of a peer: one asyncio loop, ZeroMQ, SQLite, files and a worker thread."""
