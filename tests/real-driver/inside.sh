#!/bin/sh
# Runs in a container of a Debian image with a driver's files, and no device.
#
#   inside.sh VERSION
#
# /libraries lists the driver's libraries by their paths. Prints a line for each thing that is not as it should be.
version=$1
wrong=0
bad() {
    echo "$*"
    wrong=1
}

# Each library, with all of the driver that it needs, by the loader of this image (as `ldd -r` does it). What it needs of
# the image itself, such as libX11 or libcrypto.so.3, a minimal image does not have: without it, no symbol can be looked up.
while read -r library; do
    said=$(LD_TRACE_LOADED_OBJECTS=1 LD_WARN=yes LD_BIND_NOW=yes /lib64/ld-linux-x86-64.so.2 "$library" 2>&1)
    of_image=$(echo "$said" | sed -n 's/^[[:space:]]*\(lib[^ ]*\) => not found.*/\1/p' | grep -v -i -e nvidia -e cuda -e libnv || true)
    wrong_with=$(echo "$said" | grep -e 'not found' -e 'undefined symbol' -e 'cannot open' -e 'error while loading' || true)
    for name in $of_image; do
        wrong_with=$(echo "$wrong_with" | grep -v -F -e "$name => not found" -e 'undefined symbol' || true)
    done
    [ -z "$wrong_with" ] || bad "not loaded: $library: $(echo "$wrong_with" | head -n 1)"
done < /libraries

# The names by which programs open a library are found without a path.
for name in libcuda.so libcuda.so.1 libnvidia-ml.so.1 libnvidia-ptxjitcompiler.so.1 libnvidia-opencl.so.1 libnvcuvid.so.1 \
    libnvidia-encode.so.1 libnvidia-cfg.so.1 libnvoptix.so.1 libnvidia-nvvm.so.4 "libnvidia-nvvm.so.$version"; do
    case $name in
        # Before 495 the library had a version of its own, and no program asks for this name.
        libnvidia-nvvm.so.4?*) case $version in 4*) continue ;; esac ;;
    esac
    said=$(LD_PRELOAD=$name /bin/true 2>&1)
    [ -z "$said" ] || bad "not found: $name: $said"
done

# Without a device and a module, NVIDIA's own programs say so: they were loaded, and found the rest of the driver.
said=$(nvidia-smi 2>&1)
case $said in
    *"couldn't communicate with the NVIDIA driver"*) ;;
    *) bad "nvidia-smi: $said" ;;
esac
said=$(/tranche-verify 2>&1)
case $said in
    *"no CUDA-capable device"* | *"CUDA error 100"* | *"(100)"* | *"error 100"*) ;;
    *) bad "cuInit: $said" ;;
esac
exit $wrong
