//! Whole runs on simulated GPUs: verdicts, files, reports, pictures and comparisons.

mod comparisons;
mod files;
mod gpu;
mod schema;
mod shown;
mod verdicts;
