#!/usr/bin/python3
"""A small client of the Container Runtime Interface (CRI), v1: what a kubelet asks for, one container in each pod.

  cri.py start NAME [--env K=V] [--annotation K=V] [--device CDI-NAME] [--mount HOST:CONTAINER] -- COMMAND...
  cri.py run ...            the same; waits for its end, prints what it wrote, and removes its pod
  cri.py inside NAME COMMAND...
  cri.py stop|restart|remove NAME

CRI_SOCKET is the engine's socket, CRI_STATE a directory for what is known of each pod, CRI_IMAGE the image and CRI_HANDLER
the runtime handler, empty for the engine's default. A restart is what a kubelet does: another container in the same pod.

The messages are written by their field numbers (kubernetes/cri-api, pkg/apis/runtime/v1/api.proto), so that no code has to
be generated.
"""

import json
import os
import sys
import time

import grpc

STATE = os.environ["CRI_STATE"]

# The network of the machine (NODE is 2), so that no plug-in for networks is needed, and processes of its own (CONTAINER is
# 1), as kubelets ask.
NETWORK, PID = (1, 2), (2, 1)


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(*fields):
    """The bytes of a message: (number, value) for each field. An empty value is left out, as proto3 does."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            if value:
                out += varint(number << 3) + varint(value)
            continue
        value = value.encode() if isinstance(value, str) else value
        if value:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def fields(data):
    """The fields of a message by number; of a repeated one the last."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            found[key >> 3] = number()
        elif key & 7 == 2:
            length = number()
            found[key >> 3] = data[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {key & 7}")
    return found


def call(method, request):
    with grpc.insecure_channel("unix://" + os.environ["CRI_SOCKET"]) as channel:
        try:
            answer = channel.unary_unary("/runtime.v1.RuntimeService/" + method)(request, timeout=100)
        except grpc.RpcError as error:
            sys.exit(f"{method}: {error.details()}")
    return fields(answer)


def pairs(number, entries):
    """A map, or a list of KeyValue: both are messages with the key as field 1 and the value as field 2."""
    return [(number, message((1, key), (2, value))) for key, value in (entry.split("=", 1) for entry in entries)]


def parse(words):
    options = {"env": [], "annotation": [], "device": [], "mount": []}
    while words and words[0] != "--":
        options[words[0].removeprefix("--")].append(words[1])
        words = words[2:]
    return options, words[1:]


def file_of(name):
    return os.path.join(STATE, name + ".json")


def create(pod):
    """Creates and starts the next container of a pod."""
    mounts = [(7, message((1, container), (2, host))) for host, container in (m.split(":") for m in pod["mount"])]
    config = message(
        (1, message((1, pod["name"]), (2, pod["attempt"]))),
        (2, message((1, os.environ["CRI_IMAGE"]))),
        *((3, word) for word in pod["command"]),
        *pairs(6, pod["env"]),
        *mounts,
        *pairs(10, pod["annotation"]),
        (11, f"{pod['attempt']}.log"),
        (15, message((2, message((3, message(NETWORK, PID)))))),
        *((17, message((1, device))) for device in pod["device"]),
    )
    request = message((1, pod["sandbox"]), (2, config), (3, bytes.fromhex(pod["config"])))
    pod["container"] = call("CreateContainer", request)[1].decode()
    with open(file_of(pod["name"]), "w", encoding="utf-8") as out:
        json.dump(pod, out)
    call("StartContainer", message((1, pod["container"])))


def start(name, words):
    options, command = parse(words)
    logs = os.path.join(STATE, name + ".logs")
    os.makedirs(logs, exist_ok=True)
    linux = message((2, message((1, message(NETWORK, PID)))))
    config = message((1, message((1, name), (2, "uid-" + name), (3, "default"))), (3, logs), (8, linux))
    handler = os.environ.get("CRI_HANDLER", "")
    sandbox = call("RunPodSandbox", message((1, config), (2, handler)))[1].decode()
    pod = {"name": name, "sandbox": sandbox, "config": config.hex(), "attempt": 0, "command": command, **options}
    with open(file_of(name), "w", encoding="utf-8") as out:
        json.dump(pod, out)
    create(pod)


def load(name):
    with open(file_of(name), encoding="utf-8") as pod:
        return json.load(pod)


def wait(name):
    """Waits for the end of a container, prints what it wrote, and returns its exit code."""
    pod = load(name)
    for _ in range(1000):
        status = fields(call("ContainerStatus", message((1, pod["container"])))[1])
        if status.get(3, 0) == 2:
            break
        time.sleep(0.1)
    else:
        sys.exit("the container does not end")
    with open(os.path.join(STATE, name + ".logs", f"{pod['attempt']}.log"), encoding="utf-8") as log:
        for line in log:
            # TIME STREAM TAG TEXT; the tag P is for a part of a line.
            _, _, tag, text = line.rstrip("\n").split(" ", 3)
            print(text, end="" if tag == "P" else "\n")
    return status.get(7, 0)


def stop(name):
    call("StopContainer", message((1, load(name)["container"]), (2, 20)))


def remove(name):
    pod = load(name)
    call("StopPodSandbox", message((1, pod["sandbox"])))
    call("RemovePodSandbox", message((1, pod["sandbox"])))
    os.remove(file_of(name))


def main(verb, name, words):
    if verb == "start":
        start(name, words)
    elif verb == "run":
        try:
            start(name, words)
            sys.exit(wait(name))
        finally:
            if os.path.exists(file_of(name)):
                remove(name)
    elif verb == "inside":
        request = message((1, load(name)["container"]), *((2, word) for word in words), (3, 100))
        answer = call("ExecSync", request)
        sys.stdout.write(answer.get(1, b"").decode())
        sys.stderr.write(answer.get(2, b"").decode())
        sys.exit(answer.get(3, 0))
    elif verb == "stop":
        stop(name)
    elif verb == "restart":
        pod = load(name)
        call("StopContainer", message((1, pod["container"])))
        call("RemoveContainer", message((1, pod["container"])))
        pod["attempt"] += 1
        create(pod)
    elif verb == "remove":
        remove(name)
    else:
        sys.exit(f"{verb}: not a verb")


main(sys.argv[1], sys.argv[2], sys.argv[3:])
