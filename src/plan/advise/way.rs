//! The ways in which a machine can serve a wish.

tranche_core::types::words! {
    /// How the containers of a wish get their parts of the machine.
    pub enum Way: "way" {
        /// A GPU for each container.
        Whole = "dedicated",
        /// GPUs that go to one container at a time, fewer than there are containers: the others wait.
        Waiting = "dedicated with waiting",
        /// A MIG instance for each container.
        Mig = "MIG",
        /// One MIG instance for all containers of the wish, by time-slicing.
        Pool = "MIG instance by time-slicing",
        /// Named shares of a GPU under MPS.
        Mps = "MPS",
        /// Turns of a GPU.
        Turns = "time-slicing",
    }
}
tranche_core::types::serde_as_text!(Way);

impl Way {
    /// What people give up who take this way in place of the one that was chosen.
    pub fn gives_up(self) -> &'static str {
        match self {
            Self::Whole => "the GPU that an idle container leaves to others",
            Self::Waiting => "the start at any time: containers wait while another one holds the GPU",
            Self::Mig => "sizes of your own choice, and changes of them while instances are in use",
            Self::Pool => "limits of memory and compute for each container",
            Self::Mps => "protection from the faults of others on the GPU, and hard limits",
            Self::Turns => "limits of memory and compute",
        }
    }

    /// Whether it means nothing for one container.
    pub(super) fn is_for_several(self) -> bool {
        matches!(self, Self::Waiting | Self::Pool)
    }
}
