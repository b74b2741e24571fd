"""Run one job somewhere, inside an enforced envelope.  Launchers know nothing of suites or results."""
