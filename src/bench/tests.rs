//! Whole runs on simulated GPUs: verdicts, files, reports, pictures and comparisons.

mod comparisons;
mod files;
mod gpu;
mod kept;
mod schema;
mod shown;
mod verdicts;
