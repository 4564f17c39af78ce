# After the program was removed, or an older version of it.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
if [ "$1" -eq 0 ]; then
    # Directories that only this package has, if they are empty: the package does not own them.
    for directory in /usr/share/doc/tranche-kubelet /usr/share/licenses/tranche-kubelet; do
        rmdir "$directory" 2> /dev/null || :
    done
fi
exit 0
