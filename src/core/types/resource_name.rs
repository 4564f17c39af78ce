//! Names of extended resources of Kubernetes.

super::text_type!(
    /// The name of an extended resource: `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`.
    ///
    /// A name of the domain kubernetes.io, or one without a domain, is a resource of Kubernetes itself (Kubernetes,
    /// "Extended resources"; pkg/apis/core/v1/helper, IsExtendedResourceName).
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
    ResourceName,
    is_valid,
    "not a name of an extended resource like example.com/big-gpu"
);

fn is_valid(text: &str) -> bool {
    let Some((domain, name)) = text.split_once('/') else {
        return false;
    };
    let is_name = |text: &str, longest: usize, middle: &[u8]| {
        let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let is_middle = |byte: u8| byte.is_ascii_alphanumeric() || middle.contains(&byte);
        text.len() <= longest
            && is_end(text.bytes().next())
            && is_end(text.bytes().last())
            && text.bytes().all(is_middle)
    };
    let is_label = |label: &str| is_name(label, 63, b"-") && !label.bytes().any(|byte| byte.is_ascii_uppercase());
    let is_of_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    domain.len() <= 253
        && domain.split('.').all(is_label)
        && is_name(name, 63, b"-_.")
        && !is_of_kubernetes
        && !domain.starts_with("requests.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_kubernetes_accepts_is_a_resource() {
        for good in [
            "nvidia.com/gpu",
            "nvidia.com/mig-1g.10gb",
            "a.b-c/x_Y.z",
            "nvidia.com/gpu.big",
        ] {
            assert!(good.parse::<ResourceName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "gpu",
            "/gpu",
            "nvidia.com/",
            "nvidia.com/gpu/x",
            "kubernetes.io/gpu",
            "a.kubernetes.io/gpu",
            "requests.example.com/gpu",
            "Nvidia.com/gpu",
            "nvidia..com/gpu",
            "nvidia.com/-gpu",
            "nvidia.com/gpu+x",
            &format!("nvidia.com/{}", "x".repeat(64)),
        ] {
            assert!(bad.parse::<ResourceName>().is_err(), "{bad}");
        }
    }
}
