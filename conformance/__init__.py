"""The judge: requirement ids and behaviour suites, through public names only."""
