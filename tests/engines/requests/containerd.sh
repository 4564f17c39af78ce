# containerd with the configuration of its package. Its sockets and its containers are where it puts them by itself.
daemon_up() {
    containerd > "$bed/daemon.log" 2>&1 &
    daemon=$!
    await ctr version
}

daemon_down() {
    kill "$daemon"
    wait "$daemon"
}

