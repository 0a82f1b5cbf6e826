"""Real servers for the tests, each started by the test run that needs it."""
