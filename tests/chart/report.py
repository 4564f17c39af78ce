"""What the checks print, and how many of them failed."""

import sys

failures = 0


def expect(holds, what, seen=""):
    """Prints whether a check succeeded, and counts those that did not. `seen` is what was found instead."""
    global failures
    failures += not holds
    print(f"ok: {what}" if holds else f"failed: {what}: {seen}")


def expect_success(done, what):
    expect(done.returncode == 0, what, done.stdout + done.stderr)


def finish():
    """Ends the program with a last line about all checks."""
    print(f"test-chart: {failures} failed" if failures else "test-chart: all checks succeeded")
    sys.exit(failures > 0)
