//! A terminal of root, and a program that tries to type into it.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `line` by sh in a terminal of its own, and writes what it shows to the file `shown`. What is written to its
/// standard input is typed there.
pub fn in_terminal(line: &str, shown: &Path) -> Command {
    let mut command = Command::new("script");
    command.args(["--quiet", "--flush", "--return", "--command", line]);
    command.arg(shown).env("SHELL", "/bin/sh");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

/// Lines of a shell that type `line` into each terminal that they find, and write which those are to the file `found`,
/// in brackets.
pub fn types(line: &str, found: &Path) -> String {
    TYPES.replace("$FOUND", found.to_str().unwrap()).replace("$LINE", line)
}

/// A program of a user becomes what `podman stop` executes if the user's containers.conf names it as conmon.
const TYPES: &str = r#"exec perl -e '
    use POSIX;
    $SIG{TTOU} = $SIG{TTIN} = "IGNORE";
    my ($to, $typed) = @ARGV;
    my $found = "";
    for my $file ("/dev/tty", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2") {
        open(my $terminal, "+<", $file) or next;
        $found .= "$file " if -t $terminal;
        ioctl($terminal, 0x5412, $_) for split //, $typed;
        POSIX::tcsetpgrp(fileno($terminal), getpgrp()) and $found .= "foreground ";
    }
    open(my $out, ">", "$to.new"); print $out "[$found]\n"; close($out);
    rename("$to.new", $to);
' "$FOUND" "$LINE
"
"#;
