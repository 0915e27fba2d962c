"""The nuScenes detection benchmark: mAP, NDS and errors of true positives."""
