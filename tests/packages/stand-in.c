/* Stands for tranche-kubelet in the tests of packages, which need no device plugin: it is built in a moment. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "--version") == 0)
        return puts("tranche-kubelet 0.0.0 (stand-in)") < 0;
    if (count > 1 && strcmp(words[1], "device-plugin") == 0)
        for (;;)
            pause();
    return 2;
}
