/* Starts a program in an unusual way: closed and open descriptors, blocked and ignored signals, a umask, limits, and an
   environment with odd entries. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char *environment[] = {"PATH=/nowhere", "odd", "A=1", "A=2", "LISTEN_FDS=2", "=x", "B=\xff\xfe", 0};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigaddset(&blocked, SIGXFSZ);
    sigprocmask(SIG_SETMASK, &blocked, 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    umask(0027);
    struct rlimit cpu = {1234, 2345}, files = {77, 99};
    setrlimit(RLIMIT_CPU, &cpu);
    setrlimit(RLIMIT_NOFILE, &files);
    dup2(2, 5);
    dup2(2, 42);
    close(0);
    (void)argc;
    execve(argv[1], argv + 1, environment);
    return 96;
}
