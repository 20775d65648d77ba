"""All that speaks HTTP to a ClickHouse server, of any version from 18.16 on."""
