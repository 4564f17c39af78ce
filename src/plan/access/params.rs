//! What the loaded driver does with device nodes.

/// The parameters of the driver about device nodes: NVreg_DeviceFileUID, NVreg_DeviceFileGID, NVreg_DeviceFileMode and
/// NVreg_ModifyDeviceFiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeParams {
    /// Owner of nodes.
    pub uid: u32,
    /// Group of nodes.
    pub gid: u32,
    /// Permission bits of nodes.
    pub mode: u32,
    /// Whether the driver's libraries and tools make nodes, and put their modes back. Only a driver that does not
    /// leaves a closed node closed.
    pub modifies: bool,
}

impl Default for NodeParams {
    /// The driver's defaults.
    fn default() -> Self {
        Self {
            uid: 0,
            gid: 0,
            mode: 0o666,
            modifies: true,
        }
    }
}

impl NodeParams {
    /// Reads the text of `/proc/driver/nvidia/params`. A parameter that it does not have keeps the driver's default.
    pub fn parse(params: &str) -> Self {
        let value = |name: &str| {
            let mut lines = params.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
        };
        let default = Self::default();
        Self {
            uid: value("DeviceFileUID").unwrap_or(default.uid),
            gid: value("DeviceFileGID").unwrap_or(default.gid),
            // In decimal: 438 is 0666.
            mode: value("DeviceFileMode").unwrap_or(default.mode) & 0o777,
            modifies: value("ModifyDeviceFiles") != Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_s_parameters_say_whose_a_node_is() {
        let text = "ResmanDebugLevel: 4294967295\nDeviceFileUID: 7\nDeviceFileGID: 44\nDeviceFileMode: 432\n";
        let params = NodeParams {
            uid: 7,
            gid: 44,
            mode: 0o660,
            modifies: true,
        };
        assert_eq!(NodeParams::parse(text), params);
        assert_eq!(NodeParams::parse("DeviceFileMode: x\n"), NodeParams::default());
    }

    #[test]
    fn only_a_driver_that_says_so_leaves_nodes_alone() {
        let modifies = |text: &str| NodeParams::parse(text).modifies;
        assert!(!modifies("ModifyDeviceFiles: 0\n"));
        for text in [
            "",
            "ModifyDeviceFiles: 1\n",
            "XModifyDeviceFiles: 0\n",
            "ModifyDeviceFiles: x\n",
        ] {
            assert!(modifies(text), "{text}");
        }
    }
}
