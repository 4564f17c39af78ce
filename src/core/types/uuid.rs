//! UUIDs as the driver writes them.

super::text_type!(
    /// A GPU's UUID with its prefix: `GPU-8188460b-…`.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
    GpuUuid,
    is_gpu,
    "not a GPU UUID like GPU-8188460b-…"
);

super::text_type!(
    /// A MIG device's UUID: `MIG-<uuid>`, or `MIG-GPU-<uuid>/<gi>/<ci>` from drivers before 470.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
    MigUuid,
    is_mig,
    "not a MIG UUID like MIG-6f1d3c2a-…"
);

fn is_gpu(text: &str) -> bool {
    text.strip_prefix("GPU-").is_some_and(is_body)
}

fn is_mig(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("MIG-") else {
        return false;
    };
    let is_number = |s: &str| !s.is_empty() && s.len() <= 4 && s.bytes().all(|b| b.is_ascii_digit());
    match rest.split('/').collect::<Vec<_>>()[..] {
        [body] => is_body(body),
        [gpu, gpu_instance, compute_instance] => is_gpu(gpu) && is_number(gpu_instance) && is_number(compute_instance),
        _ => false,
    }
}

/// A UUID comes from a library and becomes part of file names, device names and arguments, so only letters, digits and
/// dashes are valid. They may be grouped in any way, because some virtual GPUs do not use 8-4-4-4-12.
fn is_body(body: &str) -> bool {
    (8..=64).contains(&body.len()) && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert!("GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab".parse::<GpuUuid>().is_ok());
        assert!("MIG-8188460b-0e3a-4d7e-9d3a-0123456789ab".parse::<MigUuid>().is_ok());
        assert!(
            "MIG-GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab/7/0"
                .parse::<MigUuid>()
                .is_ok()
        );
        for bad in [
            "",
            "GPU-",
            "MIG-GPU-8188460b/../0",
            "MIG-8188460b/1",
            "GPU-8188460b\n",
            "GPU-\u{fe}\u{fe}aaaaaaaa",
        ] {
            assert!(bad.parse::<GpuUuid>().is_err(), "{bad:?}");
            assert!(bad.parse::<MigUuid>().is_err(), "{bad:?}");
        }
    }
}
