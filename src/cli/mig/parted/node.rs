//! The GPUs of this machine as mig-parted looks at them: also those that have no MIG.

use crate::mig::ViewArgs;
use crate::out;
use anyhow::Result;
use tranche_broker::mig::MigView;
use tranche_core::types::GpuIndex;
use tranche_plan::mig::PciModel;
use tranche_plan::mig::mig_parted::NodeGpu;

/// The GPUs of this machine.
pub(in crate::mig) struct Node {
    pub(in crate::mig) view: MigView,
    models: Vec<(GpuIndex, PciModel)>,
}

impl Node {
    pub(in crate::mig) fn look(at: &ViewArgs) -> Result<Self> {
        let (view, models) = MigView::with_models(&at.at.options())?;
        view.problems.iter().for_each(out::note);
        Ok(Self { view, models })
    }

    pub(in crate::mig) fn gpus(&self) -> Vec<NodeGpu<'_>> {
        let gpu = |(index, model): &(GpuIndex, PciModel)| {
            let divided = self.view.gpus.iter().find(|gpu| gpu.index == *index);
            let known = self.view.inventory.gpus.iter();
            let state = known.filter(|gpu| gpu.index_is_known && gpu.index == *index);
            NodeGpu {
                index: *index,
                model: *model,
                mode: divided
                    .map(|gpu| gpu.mode)
                    .or(state.filter_map(|gpu| gpu.mig).next())
                    .map(|state| state.current),
                divided,
            }
        };
        self.models.iter().map(gpu).collect()
    }
}
