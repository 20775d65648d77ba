"""Reading ClickHouse: the embedded engine in a child process, snapshots, frozen parts."""
