//! The ways in which a machine can serve a wish.

tranche_core::types::words! {
    /// How the containers of a wish get their parts of the machine.
    pub enum Way: "way" {
        /// A GPU for each container.
        Whole = "dedicated",
        /// GPUs that go to one container at a time, fewer than there are containers: the others wait.
        Waiting = "dedicated, with waiting",
        /// A MIG instance for each container.
        Mig = "MIG",
        /// One MIG instance for all containers of the wish, by time-slicing.
        Pool = "MIG, one instance shared by time-slicing",
        /// Named shares of a GPU under MPS.
        Mps = "MPS",
        /// Turns of a GPU.
        Turns = "time-slicing",
    }
}
tranche_core::types::serde_as_text!(Way);

impl Way {
    /// What is given up with this way, for people who would rather have it than the one that was chosen.
    pub fn gives_up(self) -> &'static str {
        match self {
            Self::Whole => "a GPU for each container, busy or not",
            Self::Waiting => "containers wait while another one holds the GPU",
            Self::Mig => "the product fixes the sizes, and a change of the layout needs idle instances",
            Self::Pool => {
                "within the instance nothing limits memory or compute, and no container has a size of its own"
            }
            Self::Mps => "a fault of one container ends the work of all on the GPU, and no limit is hard",
            Self::Turns => "nothing limits memory or compute, and containers wait for their turns",
        }
    }
}
